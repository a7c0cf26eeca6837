/** Starts the server of a benchmark, and sends its address to the parent process. */
import { Server as HttpServer } from 'node:http';
import type { Server } from 'node:net';

const KEEP_ALIVE_MS = 60_000;

export function announce(server: Server): void {
  if (server instanceof HttpServer) server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.listen(Number(process.env['BENCH_PORT'] ?? '0'), '127.0.0.1', () => {
    const address = server.address();
    if (address === null || typeof address === 'string') return;
    process.send?.({ url: `http://127.0.0.1:${address.port}` });
  });
  process.on('disconnect', () => process.exit(0));
}
