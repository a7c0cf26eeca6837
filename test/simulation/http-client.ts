/** Requests of simulated people: plain `node:http` on the sockets of the world. */
import { request } from 'node:http';
import { connectTo } from './network.ts';

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export interface Sent {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Reads only so many bytes of the response, and leaves. */
  readonly leaveAfterBytes?: number;
  /** Leaves after so long. */
  readonly patienceMs: number;
}

/** Resolves to `undefined` if the response did not arrive whole. */
export function send({
  method,
  url,
  headers = {},
  body,
  ...limits
}: Sent): Promise<Reply | undefined> {
  return new Promise((resolve) => {
    const call = request(
      url,
      { method, headers, agent: false, createConnection: (options) => connectTo(options) },
      (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > (limits.leaveAfterBytes ?? Infinity)) call.destroy();
        });
        response.on('end', () => {
          end(
            response.complete
              ? {
                  status: response.statusCode ?? 0,
                  headers: response.headers,
                  body: Buffer.concat(chunks).toString('utf8'),
                }
              : undefined,
          );
        });
        response.on('error', () => end(undefined));
        response.on('aborted', () => end(undefined));
      },
    );
    const timer = setTimeout(() => call.destroy(), limits.patienceMs);
    const end = (reply: Reply | undefined): void => {
      clearTimeout(timer);
      resolve(reply);
    };
    call.on('error', () => end(undefined));
    call.on('close', () => end(undefined));
    call.end(body);
  });
}
