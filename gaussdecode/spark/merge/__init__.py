"""From changes to a new version: plan, tasks, the merge of a bucket, commit."""
