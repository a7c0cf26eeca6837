/**
 * Addresses of upstreams: `http(s)://host[:port][/base]`, and `unix:/path/to.sock[:/base]` for a
 * server on a local socket (on Windows the path is a named pipe).
 */

export interface UpstreamTarget {
  readonly origin: string;
  /** Without a trailing slash; empty for the root. */
  readonly basePath: string;
  readonly socketPath: string | null;
}

const UNIX = 'unix:';

/** Takes an upstream address apart. Throws a RangeError that says what is allowed. */
export function parseUpstreamUrl(url: string): UpstreamTarget {
  if (url.startsWith(UNIX)) return parseUnix(url.slice(UNIX.length));
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
    throw new RangeError(`"${url}" is not an http, https or unix address`);
  }
  if (parsed.username !== '' || parsed.password !== '') {
    throw new RangeError('An upstream address carries no credentials; use apiKey or headers');
  }
  if (parsed.search !== '' || parsed.hash !== '') {
    throw new RangeError(`"${url}" must not have a query or a fragment`);
  }
  return { origin: parsed.origin, basePath: trimSlash(parsed.pathname), socketPath: null };
}

function parseUnix(rest: string): UpstreamTarget {
  // The last ":/" parts socket and base, so that a drive letter in front does no harm.
  const cut = rest.lastIndexOf(':/');
  const socketPath = cut > 0 ? rest.slice(0, cut) : rest;
  if (socketPath === '')
    throw new RangeError('A unix address needs a path, as in unix:/run/engine.sock:/v1');
  const basePath = cut > 0 ? trimSlash(rest.slice(cut + 1)) : '';
  return { origin: 'http://localhost', basePath, socketPath };
}

function trimSlash(path: string): string {
  return path.replace(/\/+$/, '');
}
