/** `GET /openapi.json`, and `GET /docs`, which shows it. */
import { paymentNetworks } from '../../payments/payments.ts';
import { z } from 'zod';
import type { ConfigInForce } from '../../config/config.ts';
import { inTurns, nextTurn } from '../../core/event-loop.ts';
import { onDemand } from '../../core/on-demand.ts';
import type { ConsoleAssets } from '../../console/assets.ts';
import type { BundleIndex } from '../../console/bundle.ts';
import { assetPath } from '../../console/console.ts';
import { jsonResponse, textContent } from '../../http/describe.ts';
import { escapeHtml } from '../../http/escape-html.ts';
import type { HttpServer } from '../../http/http.ts';
import { type OpenApiDocument, openApiDocument } from '../../http/openapi/openapi.ts';
import { type Route, get } from '../../http/route.ts';

export interface DocumentationParts {
  readonly config: ConfigInForce;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly basePath: string;
  readonly assets: () => Promise<ConsoleAssets>;
  readonly server: Pick<HttpServer, 'address' | 'routes'>;
}

/** Yields every few milliseconds, and returns the OpenAPI document of the server. */
export function ownDocument(parts: DocumentationParts): Generator<undefined, OpenApiDocument> {
  const { config, version, basePath, server } = parts;
  const { service, publicUrl, payments } = config.current;
  return openApiDocument(server.routes, {
    serviceName: service.name,
    title: service.title,
    version,
    // With port 0 only the listening server knows its address.
    publicUrl: publicUrl.endsWith(':0') ? server.address : publicUrl,
    basePath,
    takesWallets: paymentNetworks(payments).length > 0,
  });
}

const Document = z.looseObject({ openapi: z.literal('3.1.0').describe('Version of OpenAPI.') });
const HOUR_SECONDS = 3_600;
const CACHED = { 'cache-control': `public, max-age=${HOUR_SECONDS}` };
/** Allows only own files, and no framing. No trusted types, because Swagger UI inserts HTML after DOMPurify. */
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
  // The page refers to files by their hashes, and those of an older version do not exist.
  'cache-control': 'no-cache',
};

export function documentationRoutes(parts: DocumentationParts): Route[] {
  const json = onDemand(async () => {
    const document = await inTurns(ownDocument(parts));
    await nextTurn();
    return Buffer.from(JSON.stringify(document));
  });
  const page = onDemand(async () =>
    Buffer.from(referencePage(parts, (await parts.assets()).index)),
  );
  return [
    get(
      '/openapi.json',
      'public',
      {
        tag: 'Operations',
        summary: 'This document',
        about: 'OpenAPI 3.1, generated from the schemas that validate requests.',
        response: jsonResponse('OpenAPI document.', Document, { openapi: '3.1.0' }, 'no-store'),
      },
      async (context) => {
        const document = await json();
        context.setAll(CACHED);
        await context.json(200, document);
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
        summary: 'API reference',
        response: {
          status: 200,
          about: 'HTML page that loads files of this server only.',
          headers: ['no-store', 'page-security'],
          content: [textContent('text/html')],
        },
      },
      handle: async (context) => {
        const document = await page();
        context.setAll(PAGE_HEADERS);
        await context.bytes(200, 'text/html; charset=utf-8', document);
      },
    },
  ];
}

function referencePage(
  { config, basePath }: DocumentationParts,
  { reference, icon }: BundleIndex,
): string {
  const { title } = config.current.service;
  const url = escapeHtml(`${basePath}/openapi.json`);
  return `<!doctype html><html lang="en" data-openapi="${url}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${escapeHtml(title)} API</title><link rel="icon" href="${assetPath(icon)}"><link rel="stylesheet" href="${assetPath(reference.style)}"><script type="module" src="${assetPath(reference.script)}"></script></head><body><main id="reference"></main><noscript><p>The reference needs JavaScript. Without it, read <a href="${url}">the OpenAPI document</a>.</p></noscript></body></html>`;
}
