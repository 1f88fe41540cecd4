"""RocketMQ data as Spark tables and streams, and the jobs built on them; needs the extra `twinlog[spark]`."""
