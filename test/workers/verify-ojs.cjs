// Says of each request on standard input, a JSON array, whether the code of OJS Webhook Delivery 14.4 verifies it.
const crypto = require('crypto');

function verifyWebhook(secret, timestamp, body, signature) {
  const expected = crypto
    .createHmac('sha256', secret)
    .update(`${timestamp}.${body}`)
    .digest('hex');

  const received = signature.replace('sha256=', '');

  // Constant-time comparison
  return crypto.timingSafeEqual(
    Buffer.from(expected),
    Buffer.from(received)
  );
}

const requests = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(requests.map((r) => verifyWebhook(r.secret, r.timestamp, r.body, r.signature))));
