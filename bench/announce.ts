/** Lets a server of a benchmark listen, and tells the process that started it where. */
import type { Server } from 'node:http';

const KEEP_ALIVE_MS = 60_000;

export function announce(server: Server): void {
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (address === null || typeof address === 'string') return;
    process.send?.({ url: `http://127.0.0.1:${address.port}` });
  });
  process.on('disconnect', () => process.exit(0));
}
