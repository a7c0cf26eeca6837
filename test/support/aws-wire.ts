/** The signature (SigV4) and the event streams of AWS, as their specifications describe them. */
import { createHash, createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';

export interface AwsAccount {
  readonly region: string;
  readonly service: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

interface SignedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** The value of `Authorization` that the account would send with the request. */
export function awsAuthorization(request: SignedRequest, account: AwsAccount): string {
  const { region, service, accessKeyId, secretAccessKey } = account;
  const { method, headers, body } = request;
  const [path = '', query = ''] = request.path.split('?');
  const [, names = ''] = /SignedHeaders=([^,]+)/.exec(headers.authorization ?? '') ?? [];
  const signed = names.split(';').map((name) => `${name}:${String(headers[name]).trim()}\n`);
  const uri = path.split('/').map(encodeURIComponent).join('/');
  const canonical = [method, uri, query, signed.join(''), names, sha256(body)].join('\n');
  const time = String(headers['x-amz-date']);
  const scope = [time.slice(0, 8), region, service, 'aws4_request'];
  const text = ['AWS4-HMAC-SHA256', time, scope.join('/'), sha256(canonical)].join('\n');
  const key = scope.reduce<Buffer | string>(
    (last, part) => createHmac('sha256', last).update(part).digest(),
    `AWS4${secretAccessKey}`,
  );
  const signature = createHmac('sha256', key).update(text).digest('hex');
  const credential = [accessKeyId, ...scope].join('/');
  return `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${names}, Signature=${signature}`;
}

const STRING_TYPE = 7;

/** One message of an event stream: lengths, headers and payload, each part with its checksum. */
export function awsEvent([type, payload]: readonly [type: string, payload: unknown]): Buffer {
  const fields = {
    ':event-type': type,
    ':content-type': 'application/json',
    ':message-type': 'event',
  };
  const headers = Buffer.concat(
    Object.entries(fields).map(([name, value]) => {
      const length = Buffer.from([STRING_TYPE, value.length >> 8, value.length & 0xff]);
      return Buffer.concat([
        Buffer.from([name.length]),
        Buffer.from(name),
        length,
        Buffer.from(value),
      ]);
    }),
  );
  const body = Buffer.from(JSON.stringify(payload));
  const prelude = Buffer.alloc(8);
  prelude.writeUInt32BE(16 + headers.length + body.length, 0);
  prelude.writeUInt32BE(headers.length, 4);
  const message = Buffer.concat([prelude, checksum(prelude), headers, body]);
  return Buffer.concat([message, checksum(message)]);
}

function checksum(bytes: Buffer): Buffer {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return sum;
}
