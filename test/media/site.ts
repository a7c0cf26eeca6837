/**
 * A web site on a loopback port: fixed files, pages that misbehave on purpose, and a record of the
 * requests.
 */
import { once } from 'node:events';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Page = Buffer | string | ((response: ServerResponse) => void);

export interface Site {
  readonly url: string;
  readonly pages: Map<string, Page>;
  /** Requested paths, in order. */
  readonly asked: string[];
  /** Bodies of POST requests, with their headers. */
  readonly posted: { readonly headers: NodeJS.Dict<string | string[]>; readonly body: string }[];
  close(): Promise<void>;
}

export async function openSite(): Promise<Site> {
  const pages = new Map<string, Page>();
  const asked: string[] = [];
  const posted: Site['posted'] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '/';
    asked.push(path);
    if (request.method === 'POST') {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      request.on('end', () => {
        posted.push({ headers: request.headers, body });
        response.end('ok');
      });
      return;
    }
    const page = pages.get(path);
    if (page === undefined) response.writeHead(404).end('no such page');
    else if (typeof page === 'function') page(response);
    else response.end(page);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  return {
    url: `http://127.0.0.1:${port}`,
    pages,
    asked,
    posted,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Sends endless bytes, one each `everyMs`. */
export function endless(chunk: Buffer, everyMs: number) {
  return (response: ServerResponse): void => {
    response.writeHead(200, { 'content-type': 'video/mp4' });
    const timer = setInterval(() => response.write(chunk), everyMs);
    response.on('close', () => clearInterval(timer));
  };
}
