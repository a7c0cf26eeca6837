/** Ports for what must be named before somebody listens, or where nobody should. */
import { createServer } from 'node:net';

/** Below what systems give to those who ask for any port: nobody else gets one of them by chance. */
const FIRST_PORT = 10_000;
const PORTS = 20_000;

/** A port of 127.0.0.1 that nobody listens on. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return await new Promise<boolean>((told, failed) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') told(false);
      else failed(error);
    });
    server.listen(port, '127.0.0.1', () => server.close(() => told(true)));
  });
}
