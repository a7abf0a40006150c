"""Where a job runs: this machine, Flink, Dataflow, Prism, any runner of Beam's."""
