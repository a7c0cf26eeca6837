/** The baseline of benchmarks: a proxy of `node:http` and undici's `Pool.dispatch`. */
import { createServer } from 'node:http';
import { Pool } from 'undici';
import { announce } from './announce.ts';

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
announce(server);
