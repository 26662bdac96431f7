"""Where the samples are: partitions of labelled data over clients."""
