/**
 * The console for people: the page at `/` and `/console`, and its files. The page is one document
 * whose script asks the documented routes for everything; nothing here knows an account.
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

/** Pages of the console are one document; the script reads the path. */
const PAGES = ['/', '/console', '/console/:page', '/console/:page/:part'];
const YEAR_SECONDS = 31_536_000;
/**
 * Nothing but the console's own files runs or loads. `blob:` and `data:` are pictures, sound and
 * films that the viewer chose or that the service answered with.
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

/** Where a file of the bundle is served. */
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
    handle: async (context) => answerFile(context, await assets()),
  };
  return { routes: [file, ...pages] };
}

/** A file never changes under its name. */
async function answerFile(context: RequestContext, assets: ConsoleAssets): Promise<void> {
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

/** What the script has to know before it asks is in the attributes of the document. */
function document({ config, basePath }: ConsoleParts, { index }: ConsoleAssets): string {
  const { service, payments } = config.current;
  const rails = [payments.base && 'base', payments.solana && 'solana'].filter(Boolean).join(' ');
  const about = { title: service.title, service: service.name, base: basePath, rails };
  const attributes = Object.entries(about).map(
    ([key, value]) => `data-${key}="${escapeHtml(value)}"`,
  );
  const preload = index.preload.map(
    (name) => `<link rel="modulepreload" href="${assetPath(name)}">`,
  );
  const title = escapeHtml(service.title);
  return `<!doctype html><html lang="en" ${attributes.join(' ')}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><title>${title}</title><link rel="icon" href="${assetPath(index.icon)}"><link rel="stylesheet" href="${assetPath(index.console.style)}">${preload.join('')}<script type="module" src="${assetPath(index.console.script)}"></script></head><body><div id="app"></div><noscript><p>The console of ${title} is a program that runs in the browser; turn on JavaScript to use it, or read <a href="/docs">the reference</a>.</p></noscript></body></html>`;
}
