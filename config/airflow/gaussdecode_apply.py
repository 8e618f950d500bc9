"""Airflow: tables of a landing, brought up to it every ten minutes.

Copy it to the folder of DAGs, and set the places below. The command runs on Airflow's worker: there
gaussdecode[spark] is installed in an environment of its own, and there are the credentials of
the stores, of which the DAG holds none. A run that was killed is run again as it is.
"""

import datetime as dt

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PROGRAM = "/opt/gaussdecode/bin/gaussdecode"
LANDING = "s3://lake/orders"
TARGET = "s3://lake/tables"
MASTER = "spark://master:7077"

with DAG(
    "gaussdecode_apply",
    description="Tables of a landing of gaussdecode",
    schedule=dt.timedelta(minutes=10),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,  # one run does all that has landed
    max_active_runs=1,  # two at once would do their work twice
    default_args={"retries": 2, "retry_delay": dt.timedelta(minutes=1)},
    tags=["gaussdecode"],
):
    BashOperator(
        task_id="apply",
        bash_command=f"{PROGRAM} spark apply {LANDING} {TARGET} --history --master {MASTER}",
        execution_timeout=dt.timedelta(hours=2),
    )
