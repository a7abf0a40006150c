// Which release of Beam the boot program of the image is built from; go.sum has a hash of each module.
module recordmill/boot

go 1.26.0

tool github.com/apache/beam/sdks/v2/python/container

require (
	github.com/apache/beam/sdks/v2 v2.77.0 // indirect
	github.com/golang-cz/devslog v0.0.17 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260819154853-08b0e4226688 // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
