/** `GET /openapi.json`, and the pages of the API reference, which show it. */
import { paymentNetworks } from '../../payments/payments.ts';
import * as z from 'zod';
import type { ConfigInForce } from '../../config/config.ts';
import { inTurns, nextTurn } from '../../core/event-loop.ts';
import { onDemand } from '../../core/on-demand.ts';
import type { ConsoleAssets } from '../../console/assets.ts';
import { Fault } from '../../core/faults.ts';
import { jsonResponse, textContent } from '../../http/describe.ts';
import type { HttpServer } from '../../http/http.ts';
import { type OpenApiDocument, openApiDocument } from '../../http/openapi/openapi.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get } from '../../http/route.ts';
import { groupPage, overviewPage, referenceOf } from './reference-pages.ts';

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
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');
const PAGE_HEADERS = {
  'content-security-policy': PAGE_POLICY,
  'referrer-policy': 'no-referrer',
  // The page refers to files by their hashes, and those of an older version do not exist.
  'cache-control': 'no-cache',
};

export function documentationRoutes(parts: DocumentationParts): Route[] {
  const made = onDemand(() => inTurns(ownDocument(parts)));
  const json = onDemand(async () => {
    const document = await made();
    await nextTurn();
    return Buffer.from(JSON.stringify(document));
  });
  const reference = onDemand(async () => {
    const [document, { index }] = await Promise.all([made(), parts.assets()]);
    return referenceOf(document, `${parts.basePath}/openapi.json`, index);
  });
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
    page('/docs', 'API reference', async (context) => {
      const { q = '' } = readQuery(context, SearchQuery);
      return overviewPage(await reference(), q);
    }),
    page('/docs/:group', 'A group of the API reference', async (context) => {
      const found = groupPage(await reference(), context.parameters['group'] ?? '');
      if (found === undefined) throw new Fault('NOT_FOUND');
      return found;
    }),
  ];
}

const SearchQuery = z.object({
  q: z.string().max(100).optional().describe('Words that the listed operations contain.'),
});
const GROUP = {
  name: 'group',
  in: 'path',
  about: 'Name of the group in lower case, with hyphens.',
  example: 'chat',
} as const;

/** A page of this server; `write` returns its HTML. */
function page(
  path: string,
  summary: string,
  write: (context: RequestContext) => Promise<string>,
): Route {
  const isGroup = path !== '/docs';
  return {
    method: 'GET',
    path,
    root: true,
    operational: true,
    auth: 'public',
    describe: {
      tag: 'Operations',
      summary,
      ...(isGroup ? { parameters: [GROUP], refusals: ['NOT_FOUND'] } : { query: SearchQuery }),
      response: {
        status: 200,
        about: 'HTML page that loads files of this server only.',
        headers: ['no-store', 'page-security'],
        content: [textContent('text/html')],
      },
    },
    handle: async (context) => {
      const html = Buffer.from(await write(context));
      context.setAll(PAGE_HEADERS);
      await context.bytes(200, 'text/html; charset=utf-8', html);
    },
  };
}
