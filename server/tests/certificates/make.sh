#!/bin/sh
# Makes the certificates of the tests; they are valid for a century, but for `expired.pem`.
set -e
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
authority() {
    key "$1"
    openssl req -x509 -new -key "$1.key" -days 36500 -subj "/CN=$1" -out "$1.pem"
}
signed() { # NAME AUTHORITY FROM TO
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    echo "subjectAltName=IP:127.0.0.1,DNS:localhost" > names
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -set_serial "$3" -days "$4" \
        -extfile names -out "$1.pem"
    rm "$1.csr" names
}
authority authority
authority stranger
signed server authority 1 36500
signed renewed authority 2 36500
signed client authority 3 36500
signed expired authority 4 -1
signed foreign stranger 5 36500
rm authority.key stranger.key
