/** The baseline: `node:http` in front, `undici` Pool.dispatch behind, nothing between. */
import { createServer } from 'node:http';
import { Pool } from 'undici';

const pool = new Pool(process.argv[2] ?? '', { connections: 4096 });

const server = createServer((request, response) => {
  const parts: Buffer[] = [];
  request.on('data', (part: Buffer) => parts.push(part));
  request.on('end', () => {
    pool.dispatch(
      {
        path: '/chat/completions',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: Buffer.concat(parts),
      },
      {
        onRequestStart: () => undefined,
        onResponseStart: (_controller, status, headers) => {
          response.writeHead(status, { 'content-type': String(headers['content-type']) });
        },
        onResponseData: (_controller, chunk) => {
          response.write(chunk);
        },
        onResponseEnd: () => {
          response.end();
        },
        onResponseError: () => {
          response.destroy();
        },
      },
    );
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') return;
  process.send?.({ url: `http://127.0.0.1:${address.port}` });
});
process.on('disconnect', () => process.exit(0));
