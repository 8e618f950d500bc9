"""Declare all metrics, in a table per stage, and show them to Prometheus.

Names are ``gaussdecode_<stage>_<subject>_<unit>[_total]``, in bytes and seconds; every series has the label
``slot``. Nothing is counted here: the stages count in plain numbers, and a scrape asks the supervisor for a
reading of them, so that the hot path pays nothing. Table names are no labels: there may be thousands, and they
would tell too much. docs/metrics.md is generated from these tables.
"""
