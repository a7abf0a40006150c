"""Engines that run jobs: this machine, Flink, Dataflow, Prism, any runner of Beam's."""
