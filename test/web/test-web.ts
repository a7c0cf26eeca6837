/** The web for tests, on loopback: a SearXNG search server, pages and files. It records every request. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface FoundItem {
  readonly title: string;
  readonly url: string;
  readonly content: string;
  readonly publishedDate?: string;
}

export interface Page {
  readonly body: string | Uint8Array;
  readonly type?: string;
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

export class TestWeb {
  /** Recorded search queries. */
  readonly queries: string[] = [];
  /** Paths of requested pages. */
  readonly asked: string[] = [];
  readonly pages = new Map<string, Page>();
  results: readonly FoundItem[] = [];
  /** Response status of the search server. */
  searchStatus = 200;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async start(): Promise<TestWeb> {
    const web = new TestWeb();
    web.#server.listen(0, '127.0.0.1');
    await once(web.#server, 'listening');
    return web;
  }

  get url(): string {
    // A listening TCP server has an AddressInfo.
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '', this.url);
    if (url.pathname === '/search') {
      const query = url.searchParams.get('q') ?? '';
      this.queries.push(query);
      response.writeHead(this.searchStatus, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ query, results: this.results }));
      return;
    }
    this.asked.push(url.pathname);
    const page = this.pages.get(url.pathname);
    const type = page?.type ?? 'text/html; charset=utf-8';
    response.writeHead(page?.status ?? (page === undefined ? 404 : 200), {
      'content-type': type,
      ...page?.headers,
    });
    response.end(page?.body ?? '<p>none');
  }
}
