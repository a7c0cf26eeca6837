/**
 * `GET /openapi.json` below the base path, and `GET /docs`: the document of the running server and
 * the page that people read. Both are made once, when the first asks.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { docsPage } from '../../http/docs/docs.ts';
import type { OpenApiDocument } from '../../http/openapi/openapi.ts';
import type { Route } from '../../http/route.ts';

export interface DocumentationParts {
  readonly document: () => OpenApiDocument;
}

const HOUR_SECONDS = 3_600;

export function documentationRoutes(parts: DocumentationParts): Route[] {
  let json: Buffer | undefined;
  let page: Page | undefined;
  return [
    {
      method: 'GET',
      path: '/openapi.json',
      auth: 'public',
      describe: {
        tag: 'Operations',
        summary: 'This document',
        about: 'OpenAPI 3.1, made from the schemas that validate requests.',
        answers: [
          {
            status: 200,
            about: 'The document.',
            headers: ['no-store'],
            content: [
              {
                type: 'application/json',
                schema: z.looseObject({ openapi: z.literal('3.1.0') }),
                example: { openapi: '3.1.0' },
              },
            ],
          },
        ],
      },
      handle: async (context) => {
        json ??= Buffer.from(JSON.stringify(parts.document()));
        context.set('cache-control', `public, max-age=${HOUR_SECONDS}`);
        await context.json(200, json);
      },
    },
    {
      method: 'GET',
      path: '/docs',
      root: true,
      operational: true,
      auth: 'public',
      describe: {
        tag: 'Operations',
        summary: 'The API for people',
        answers: [
          {
            status: 200,
            about: 'One page without anything from elsewhere.',
            headers: ['no-store', 'page-security'],
            content: [{ type: 'text/html', schema: { type: 'string' } }],
          },
        ],
      },
      handle: async (context) => {
        page ??= securePage(docsPage(parts.document()));
        context.setAll(page.headers);
        await context.bytes(200, 'text/html; charset=utf-8', page.body);
      },
    },
  ];
}

interface Page {
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** Nothing but the page's own style and script runs in it, and nothing frames it. */
function securePage(page: { html: string; style: string; script: string }): Page {
  const hash = (text: string): string =>
    `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const policy = [
    "default-src 'none'",
    `style-src ${hash(page.style)}`,
    `script-src ${hash(page.script)}`,
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
  return {
    body: Buffer.from(page.html),
    headers: {
      'content-security-policy': policy,
      'referrer-policy': 'no-referrer',
      'cache-control': `public, max-age=${HOUR_SECONDS}`,
    },
  };
}
