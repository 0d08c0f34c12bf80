#!/bin/sh
# Makes the certificates of the tests; they are valid for a century, but for `expired.pem`, which was
# valid in 2024, and `never.pem`, which ends before it begins.
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
valid_in_2024() { # NAME AUTHORITY
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    : > index
    cat > conf <<END
[ca]
default_ca = it
[it]
database = index
new_certs_dir = .
default_md = sha256
serial = serial
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = IP:127.0.0.1,DNS:localhost
END
    openssl ca -batch -config conf -create_serial -notext -in "$1.csr" -cert "$2.pem" \
        -keyfile "$2.key" -startdate 240101000000Z -enddate 250101000000Z -out "$1.pem"
    serial=$(openssl x509 -in "$1.pem" -noout -serial)
    rm "$1.csr" conf index* serial* "${serial#serial=}.pem"
}
authority authority
authority stranger
signed server authority 1 36500
signed renewed authority 2 36500
signed client authority 3 36500
valid_in_2024 expired authority
signed foreign stranger 5 36500
signed never authority 6 -1
rm authority.key stranger.key never.key
