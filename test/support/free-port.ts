/** Ports that are needed before a server listens, or on which no server listens. */
import { createServer } from 'node:net';

/** Below the range from which systems assign free ports, so that no other program gets one by chance. */
const FIRST_PORT = 10_000;
const PORTS = 20_000;

/** Returns a port of 127.0.0.1 on which no server listens. */
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
