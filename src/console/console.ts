/**
 * The console: serves the document at `/` and `/console`, and its files. The script of the document
 * calls only documented routes of the API.
 */
import { Fault } from '../core/faults.ts';
import type { ConfigInForce } from '../config/config.ts';
import { escapeHtml } from '../http/escape-html.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Feature, Route } from '../http/route.ts';
import type { ConsoleAssets } from './assets.ts';
import { ASSET, pageDescription } from './describe.ts';

export interface ConsoleParts {
  readonly config: ConfigInForce;
  readonly basePath: string;
  readonly assets: () => Promise<ConsoleAssets>;
}

/** All pages are one document, whose script reads the path. */
const PAGES = ['/', '/console', '/console/:page', '/console/:page/:part'];
const YEAR_SECONDS = 31_536_000;
/**
 * Allows only files of the console. `blob:` and `data:` are for images, audio and video that the user
 * chose or that the API returned.
 */
const POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "media-src 'self' data: blob:",
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');
const SECURITY = {
  'content-security-policy': POLICY,
  'referrer-policy': 'no-referrer',
};

export function assetPath(name: string): string {
  return `/console/assets/${name}`;
}

export function consolePages(parts: ConsoleParts): Feature {
  const { assets } = parts;
  const common = { method: 'GET', root: true, operational: true, auth: 'public' } as const;
  const pages = PAGES.map((path): Route => ({
    ...common,
    path,
    describe: pageDescription(path),
    handle: async (context) => {
      const page = Buffer.from(document(parts, await assets()));
      context.setAll(SECURITY);
      context.set('cache-control', 'no-cache');
      await context.bytes(200, 'text/html; charset=utf-8', page);
    },
  }));
  const file: Route = {
    ...common,
    path: '/console/assets/:file',
    describe: ASSET,
    handle: async (context) => sendFile(context, await assets()),
  };
  return { routes: [file, ...pages] };
}

/** Sends a file with a long cache time, because its name contains a hash of its contents. */
async function sendFile(context: RequestContext, assets: ConsoleAssets): Promise<void> {
  const name = context.parameters['file'] ?? '';
  const file = assets.files.get(name) ?? (await assets.earlier(name));
  if (file === undefined) throw new Fault('NOT_FOUND');
  context.setAll(SECURITY);
  context.set('cache-control', `public, max-age=${YEAR_SECONDS}, immutable`);
  context.set('vary', 'Accept-Encoding');
  const accepted = context.header('accept-encoding') ?? '';
  const encoding = /\bbr\b/.test(accepted) ? 'br' : /\bgzip\b/.test(accepted) ? 'gzip' : undefined;
  const bytes = { br: file.brotli, gzip: file.gzip };
  const body = encoding === undefined ? file.plain : bytes[encoding];
  if (encoding !== undefined) context.set('content-encoding', encoding);
  context.set('content-length', body.length);
  context.pipe(200, file.type).end(body);
}

/** The document, with the settings of the script as attributes. */
function document({ config, basePath }: ConsoleParts, { index }: ConsoleAssets): string {
  const { service, payments } = config.current;
  const evm = [payments.base, ...payments.networks].flatMap((rail) => rail?.network ?? []);
  const rails = [evm[0] && 'base', payments.solana && 'solana'].filter(Boolean).join(' ');
  const cards = payments.stripe || payments.shop ? 'yes' : '';
  const about = {
    title: service.title,
    service: service.name,
    base: basePath,
    rails,
    cards,
    networks: evm.join(' '),
  };
  const attributes = Object.entries(about).map(
    ([key, value]) => `data-${key}="${escapeHtml(value)}"`,
  );
  const preload = index.preload.map(
    (name) => `<link rel="modulepreload" href="${assetPath(name)}">`,
  );
  const title = escapeHtml(service.title);
  return `<!doctype html><html lang="en" ${attributes.join(' ')}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${title}</title><link rel="icon" href="${assetPath(index.icon)}"><link rel="stylesheet" href="${assetPath(index.console.style)}">${preload.join('')}<script type="module" src="${assetPath(index.console.script)}"></script></head><body><div id="app"></div><noscript><p>The console of ${title} needs JavaScript. Enable it, or read the <a href="/docs">API reference</a>.</p></noscript></body></html>`;
}
