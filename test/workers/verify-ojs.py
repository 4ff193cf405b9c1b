# Says of each request on standard input, a JSON array, whether the code of OJS Webhook Delivery 14.5 verifies it.
import hmac
import hashlib
import json
import sys

def verify_webhook(secret: str, timestamp: str, body: str, signature: str) -> bool:
    expected = hmac.new(
        secret.encode(),
        f"{timestamp}.{body}".encode(),
        hashlib.sha256
    ).hexdigest()

    received = signature.removeprefix("sha256=")

    return hmac.compare_digest(expected, received)

print(json.dumps([verify_webhook(**request) for request in json.load(sys.stdin)]))
