"""Turn changes into a new version of a table: plan, tasks, merge of a bucket, commit."""
