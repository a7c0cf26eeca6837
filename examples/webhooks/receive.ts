/**
 * Receives webhooks and verifies their signatures as defined by Standard Webhooks, without a package.
 *
 *   WEBHOOK_SECRET=whsec_… PORT=8500 npx node examples/webhooks/receive.ts
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { type IncomingHttpHeaders, createServer } from 'node:http';

const TOLERANCE_SECONDS = 300;
const MAX_BODY_CHARS = 100_000;
const key = Buffer.from((process.env['WEBHOOK_SECRET'] ?? '').replace(/^whsec_/, ''), 'base64');
/** Ids of received messages; a repeated delivery has the same id. */
const seen = new Set<string>();

function isSigned(headers: IncomingHttpHeaders, body: string): boolean {
  const id = String(headers['webhook-id']);
  const seconds = Number(headers['webhook-timestamp']);
  if (!(Math.abs(Date.now() / 1000 - seconds) <= TOLERANCE_SECONDS)) return false;
  const wanted = createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest();
  // The header can contain several signatures: `v1,<base64> v1,<base64>`.
  return String(headers['webhook-signature'])
    .split(' ')
    .filter((one) => one.startsWith('v1,'))
    .map((one) => Buffer.from(one.slice(3), 'base64'))
    .some((given) => given.length === wanted.length && timingSafeEqual(given, wanted));
}

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8');
  request.on('data', (piece: string) => {
    body += piece;
    if (body.length > MAX_BODY_CHARS) request.destroy();
  });
  request.on('end', () => {
    if (key.length === 0 || !isSigned(request.headers, body)) {
      response.writeHead(401).end();
      return;
    }
    const id = String(request.headers['webhook-id']);
    if (!seen.has(id)) console.log(body);
    seen.add(id);
    response.writeHead(204).end();
  });
});
server.listen(Number(process.env['PORT'] ?? '8500'), () => console.log('Listening'));
