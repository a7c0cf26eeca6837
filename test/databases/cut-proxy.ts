/**
 * A network between farebox and PostgreSQL that a test can cut: bytes stop without a word, as when
 * a cable is pulled, and open connections never come back.
 */
import { type Socket, connect, createServer } from 'node:net';

export interface CutProxy {
  /** The address of a database behind it. */
  url(database: string): string;
  /** Drops all data from now on, without closing connections. */
  cut(): void;
  /** New connections pass again; those from before stay dead. */
  mend(): void;
  /** From now on what the database says comes so much later. */
  slow(ms: number): void;
  /** New connections go to another server. */
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
      // In the order in which it came, when the way has become quicker.
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
  /** Connections that a cut has hit. */
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
