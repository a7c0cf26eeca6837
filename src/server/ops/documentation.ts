/**
 * The OpenAPI document of this very server, under the address that callers know it by, at
 * `GET /openapi.json` below the base path; and `GET /docs`, the page that people read. Both are
 * made once, when the first asks.
 */
import { z } from 'zod';
import type { ConfigInForce } from '../../config/config.ts';
import { inTurns, nextTurn } from '../../core/event-loop.ts';
import { onDemand } from '../../core/on-demand.ts';
import type { ConsoleAssets } from '../../console/assets.ts';
import type { BundleIndex } from '../../console/bundle.ts';
import { assetPath } from '../../console/console.ts';
import { jsonResponse, textContent } from '../../http/describe.ts';
import { escapeHtml } from '../../http/escape-html.ts';
import { type OpenApiDocument, openApiDocument } from '../../http/openapi/openapi.ts';
import { type Route, get } from '../../http/route.ts';

export interface OwnDocumentParts {
  readonly config: ConfigInForce;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly basePath: string;
  readonly assets: () => Promise<ConsoleAssets>;
  /** Every route of the server. */
  readonly routes: () => readonly Route[];
}

export class OwnDocument {
  readonly #parts: OwnDocumentParts;
  #listensOn: string | undefined;

  constructor(parts: OwnDocumentParts) {
    this.#parts = parts;
  }

  /** Told where the server listens, `http://host:port`. */
  listens(address: string): void {
    this.#listensOn = address;
  }

  /** What it tells of. */
  get routes(): readonly Route[] {
    return this.#parts.routes();
  }

  /** The files that its page loads. */
  assets(): Promise<ConsoleAssets> {
    return this.#parts.assets();
  }

  get title(): string {
    return this.#parts.config.current.service.title;
  }

  get basePath(): string {
    return this.#parts.basePath;
  }

  /** In pieces of some milliseconds. */
  openApi(): Generator<undefined, OpenApiDocument> {
    const { config, version, basePath } = this.#parts;
    const { service, publicUrl, payments } = config.current;
    // With port 0 only the listening server knows its address.
    const origin = publicUrl.endsWith(':0') ? (this.#listensOn ?? publicUrl) : publicUrl;
    const { name: serviceName, title } = service;
    const takesWallets = payments.base !== undefined || payments.solana !== undefined;
    const options = { serviceName, title, version, publicUrl: origin, basePath, takesWallets };
    return openApiDocument(this.routes, options);
  }
}

const Document = z.looseObject({ openapi: z.literal('3.1.0').describe('Version of OpenAPI.') });
const HOUR_SECONDS = 3_600;
const CACHED = { 'cache-control': `public, max-age=${HOUR_SECONDS}` };
/**
 * The page runs and loads files of this server alone, and cannot be framed. Trusted types are not
 * required: Swagger UI cleans Markdown with DOMPurify and then sets it as markup.
 */
const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data: blob:",
  'media-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');
const PAGE_HEADERS = {
  'content-security-policy': PAGE_POLICY,
  'referrer-policy': 'no-referrer',
  // It names its files by their hashes, and those of an older version are gone.
  'cache-control': 'no-cache',
};

export function documentationRoutes(document: OwnDocument): Route[] {
  const json = onDemand(async () => {
    const made = await inTurns(document.openApi());
    await nextTurn();
    return Buffer.from(JSON.stringify(made));
  });
  const page = onDemand(async () =>
    Buffer.from(referencePage(document, (await document.assets()).index)),
  );
  return [
    get(
      '/openapi.json',
      'public',
      {
        tag: 'Operations',
        summary: 'This document',
        about: 'OpenAPI 3.1, made from the schemas that validate requests.',
        response: jsonResponse('The document.', Document, { openapi: '3.1.0' }, 'no-store'),
      },
      async (context) => {
        const made = await json();
        context.setAll(CACHED);
        await context.json(200, made);
      },
    ),
    {
      method: 'GET',
      path: '/docs',
      root: true,
      operational: true,
      auth: 'public',
      describe: {
        tag: 'Operations',
        summary: 'The API for people',
        response: {
          status: 200,
          about: 'One page without anything from elsewhere.',
          headers: ['no-store', 'page-security'],
          content: [textContent('text/html')],
        },
      },
      handle: async (context) => {
        const made = await page();
        context.setAll(PAGE_HEADERS);
        await context.bytes(200, 'text/html; charset=utf-8', made);
      },
    },
  ];
}

function referencePage({ title, basePath }: OwnDocument, { reference, icon }: BundleIndex): string {
  const url = escapeHtml(`${basePath}/openapi.json`);
  return `<!doctype html><html lang="en" data-openapi="${url}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${escapeHtml(title)} API</title><link rel="icon" href="${assetPath(icon)}"><link rel="stylesheet" href="${assetPath(reference.style)}"><script type="module" src="${assetPath(reference.script)}"></script></head><body><main id="reference"></main><noscript><p>The reference runs in the browser; without JavaScript read <a href="${url}">the OpenAPI document</a>.</p></noscript></body></html>`;
}
