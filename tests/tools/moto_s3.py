# SPDX-License-Identifier: Apache-2.0
"""moto_s3.py DIR FILE: moto serves S3 whose bucket `models` has all files of DIR below the prefix `a b+c~d`.
Writes its address to FILE, and waits for its end. Needs moto with its server."""

import pathlib
import sys
import time

import boto3
from moto.server import ThreadedMotoServer

root, told = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
address = "http://{}:{}".format(*server.get_host_and_port())
bucket = boto3.client("s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="moto",
                      aws_secret_access_key="moto")
bucket.create_bucket(Bucket="models")
for path in root.rglob("*"):
    if path.is_file():
        bucket.put_object(Bucket="models", Key=f"a b+c~d/{path.relative_to(root)}", Body=path.read_bytes())
told.with_suffix(".new").write_text(address)
told.with_suffix(".new").rename(told)
while True:
    time.sleep(60)
