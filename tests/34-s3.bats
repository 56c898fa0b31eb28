#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# s3:// as a place, against a server that checks signatures (tests/tools/web_places.py).
#
# bats file_tags=slow

load helpers
load web

prepare() {
    start_web
    export AWS_ENDPOINT_URL=$WEB/s3 AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=SECRET \
        AWS_REGION=eu-test-1
    unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 AWS_DEFAULT_REGION
}

lists() { # TREE NAME...
    get -l "$1"
    assert_eq "$status" 0 status
    assert_eq "$(cut -d' ' -f2- <<<"$output")" "$(printf '%s\n' "${@:2}")" names
}

# bats test_tags=quick
@test "files of a bucket are listed and read, whatever their names" {
    local name names=('a b+c~d&e=f/1.safetensors' 'config.json' 'é?%41/2.safetensors')
    for name in "${names[@]}"; do make_file "bucket/m/$name" 70000; done
    make_file bucket/other.json 5
    make_file bucket/m/.hidden 5
    lists s3://bucket/m "${names[@]}"
    lists s3://bucket/m/ "${names[@]}"
    for name in "${names[@]}"; do
        get s3://bucket/m "$name" "$T/out" 2 30000
        assert_eq "$status" 0 status
        cmp "$T/out" "$T/www/bucket/m/$name"
    done
    gets s3://bucket/m/config.json bucket/m/config.json
}

@test "a long list comes page by page" {
    local i
    for i in 1 2 3 4 5; do make_file "paged/m/$i.json" "$i"; done
    lists s3://paged/m {1,2,3,4,5}.json
    assert_eq "$(count_requests list-type)" 3 pages
}

@test "a list without an end is refused" {
    local bucket
    for bucket in endless endless-hidden endless-hidden-same; do
        make_file $bucket/m/a.json 1
        get -l s3://$bucket/m
        assert_eq "$status" 1 "status of $bucket"
        assert_match "$output" "^EPROTO: s3://$bucket/m: cannot list it: its list has no end"
    done
    assert_eq "$(count_requests '/s3/endless-hidden\?.*list-type')" 2049 'pages of hidden keys'
    assert_eq "$(count_requests '/s3/endless-hidden-same\?.*list-type')" 2 'pages with one token'
}

@test "checksums of objects whose ETag is none are asked for, and compared" {
    local kind
    for kind in sha256 sha1 crc32 crc32c crc64nvme; do
        make_file "bucket/sums-$kind/a.json" 3000
        gets "s3://bucket/sums-$kind/a.json" "bucket/sums-$kind/a.json" 1 1000
        make_file "bucket/sums-$kind-wrong/a.json" 3000
        refuses "s3://bucket/sums-$kind-wrong/a.json" \
            "^EBADMSG: .*sums-$kind-wrong/a.json: .*their $kind is [0-9a-f]+, not [0-9a-f]+;" 1 1000
        make_file "bucket/sums-$kind-parts/a.json" 3000
        gets "s3://bucket/sums-$kind-parts/a.json" "bucket/sums-$kind-parts/a.json" 1 1000
    done
    assert_eq "$(count_requests '"x-amz-checksum-mode": "ENABLED"')" 15 'requests for a checksum'
    make_file public/sums-crc32-wrong/a.json 3000
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    refuses s3://public/sums-crc32-wrong/a.json 'their crc32 is' 1 1000
}

@test "session tokens, files of credentials and profiles" {
    make_file TOKENs/a.json 10
    AWS_SESSION_TOKEN=TOKEN gets s3://TOKENs/a.json TOKENs/a.json
    refuses s3://TOKENs/a.json '^EACCES: .*403 Forbidden: InvalidToken'
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_ENDPOINT_URL
    mkdir "$T/.aws"
    printf '[default]\naws_access_key_id=WRONG\naws_secret_access_key=x\n[test]\n' >"$T/.aws/credentials"
    printf '  aws_access_key_id = AKIDEXAMPLE\n' >>"$T/.aws/credentials" # indented: of the line above
    printf 'aws_access_key_id = AKIDEXAMPLE\r\naws_secret_access_key = SECRET\naws_session_token=TOKEN\n' \
        >>"$T/.aws/credentials"
    printf '[profile test]\nregion = eu-test-1\nendpoint_url = %s/s3/\n' "$WEB" >"$T/.aws/config"
    AWS_PROFILE='test' gets s3://TOKENs/a.json TOKENs/a.json
    AWS_PROFILE=none refuses s3://TOKENs/a.json "^EINVAL: .*profile 'none'"
}

# bats test_tags=quick
@test "errors of S3 name the cause and the way out" {
    make_file bucket/a.json 10
    make_file public/a.json 10
    refuses s3://bucket/none.json '^ENOENT: s3://bucket/none.json: .*404 Not Found: NoSuchKey'
    AWS_SECRET_ACCESS_KEY=other refuses s3://bucket/a.json '^EACCES: .*SignatureDoesNotMatch'
    refuses s3://far/a.json '^ELOOP: .*region eu-far-2, not eu-test-1; set AWS_REGION=eu-far-2'
    refuses s3:///a.json '^EINVAL: .*no bucket'
    AWS_REGION=evil.example/ refuses s3://bucket/a.json "^EINVAL: .*'evil.example/' is no name of a region; set AWS_REGION"
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    refuses s3://bucket/a.json '^EACCES: .*no credentials for S3; set AWS_ACCESS_KEY_ID'
    gets s3://public/a.json public/a.json
}

@test "lists that lie are refused" {
    local bucket
    for bucket in doctype broken lies climbs; do
        make_file "$bucket/m/a.json" 10
        get -l "s3://$bucket/m"
        assert_eq "$status" 1 "status of $bucket"
    done
    assert_match "$output" 'announces the file .*\.\./up.json'
    get -l s3://bucket/none
    assert_match "$output" '^ENOENT: .*no key below it; look at the bucket'
}
