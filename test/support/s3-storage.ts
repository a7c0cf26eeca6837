/**
 * A double of S3-compatible storage on loopback, for tests of backups: PUT, GET, DELETE and the list of a bucket, in
 * memory, by path. It refuses requests without a signature of the expected access key, and does not verify the
 * signature itself.
 */
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import { endServer, listen } from './loopback.ts';

export class S3Storage {
  /** By `/bucket/key`. */
  readonly objects = new Map<string, Buffer>();
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  readonly accessKeyId: string;

  constructor(accessKeyId: string) {
    this.accessKeyId = accessKeyId;
  }

  async start(): Promise<string> {
    return `http://127.0.0.1:${await listen(this.#server)}`;
  }

  stop(): Promise<void> {
    return endServer(this.#server);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://storage');
    const signed = `AWS4-HMAC-SHA256 Credential=${this.accessKeyId}/`;
    if (request.headers.authorization?.startsWith(signed) !== true) {
      response.writeHead(403).end('<Error><Code>AccessDenied</Code></Error>');
      return;
    }
    if (request.method === 'PUT') {
      this.objects.set(pathname, Buffer.concat(chunks));
      response.writeHead(200, { etag: '"1"' }).end();
    } else if (request.method === 'DELETE') {
      this.objects.delete(pathname);
      response.writeHead(204).end();
    } else if (searchParams.has('list-type')) {
      const folder = `${pathname.replace(/\/$/, '')}/`;
      const prefix = searchParams.get('prefix') ?? '';
      const keys = [...this.objects.keys()]
        .filter((path) => path.startsWith(folder + prefix))
        .map((path) => `<Contents><Key>${path.slice(folder.length)}</Key></Contents>`);
      response
        .writeHead(200, { 'content-type': 'application/xml' })
        .end(`<ListBucketResult>${keys.join('')}</ListBucketResult>`);
    } else {
      const bytes = this.objects.get(pathname);
      if (bytes === undefined) response.writeHead(404).end('<Error><Code>NoSuchKey</Code></Error>');
      else response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
    }
  }
}
