/**
 * A network between Farebox and PostgreSQL that a test can cut: data stops without an error, as
 * after a pulled cable, and open connections never recover.
 */
import { type Socket, connect, createServer } from 'node:net';

export interface CutProxy {
  /** URL of a database behind the proxy. */
  url(database: string): string;
  /** Drops all data from now on, without closing connections. */
  cut(): void;
  /** Allows new connections; old ones stay broken. */
  mend(): void;
  /** Delays all data from the database by this time. */
  slow(ms: number): void;
  /** Sends new connections to another server. */
  redirect(socketPath: string): void;
  close(): Promise<void>;
}

export async function startCutProxy(socketPath: string): Promise<CutProxy> {
  let target = socketPath;
  let isCut = false;
  let slowMs = 0;
  const open = new Set<Socket>();
  const pass = (from: Socket, to: Socket, isAnswer: boolean): void => {
    let lastMs = 0;
    from.on('data', (data: Buffer) => {
      if (isCut || deaf.has(from)) return;
      const nowMs = performance.now();
      // Keeps the order if the delay becomes shorter.
      const atMs = Math.max(lastMs, nowMs + (isAnswer ? slowMs : 0));
      if (atMs <= nowMs) {
        to.write(data);
        return;
      }
      lastMs = atMs;
      setTimeout(() => to.write(data), Math.ceil(atMs - nowMs));
    });
    from.on('close', () => {
      open.delete(from);
      if (!isCut && !deaf.has(from)) to.destroy();
    });
    from.on('error', () => from.destroy());
  };
  /** Connections that were cut. */
  const deaf = new WeakSet<Socket>();
  const server = createServer((client) => {
    open.add(client);
    if (isCut) {
      client.on('error', () => client.destroy());
      return;
    }
    const database = connect(target);
    open.add(database);
    pass(client, database, false);
    pass(database, client, true);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const address = server.address();
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
  return {
    url: (database) => `postgres://postgres@127.0.0.1:${port}/${database}`,
    cut: () => {
      isCut = true;
      for (const socket of open) deaf.add(socket);
    },
    mend: () => {
      isCut = false;
    },
    slow: (ms) => {
      slowMs = ms;
    },
    redirect: (path) => {
      target = path;
    },
    close: async () => {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
