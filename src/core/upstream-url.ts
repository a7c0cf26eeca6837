/** Upstream URLs: `http(s)://host[:port][/base][?query]` and `unix:/path/to.sock[:/base]`. */

export interface UpstreamTarget {
  readonly origin: string;
  /** Without a trailing slash; empty for the root. */
  readonly basePath: string;
  /** Added to every path, without `?`; Azure needs `api-version`. */
  readonly query: string;
  readonly socketPath: string | null;
}

/** PEM texts for TLS to an upstream. */
export interface TlsMaterial {
  /** Authorities to trust in place of those of the system. */
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

const UNIX = 'unix:';

/** Parses an upstream URL. Throws a RangeError without the URL, which may include a key. */
export function parseUpstreamUrl(url: string): UpstreamTarget {
  if (url.startsWith(UNIX)) return parseUnix(url.slice(UNIX.length));
  const parsed = URL.parse(url);
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:')) {
    throw new RangeError('Must be an absolute http:// or https:// URL, or unix:/path.sock:/v1');
  }
  if (parsed.username !== '' || parsed.password !== '') {
    throw new RangeError(
      'Must not contain a user name or a password; use "apiKey" or "headers" for credentials',
    );
  }
  if (parsed.hash !== '') throw new RangeError('Must not contain a fragment');
  return {
    origin: parsed.origin,
    basePath: trimSlash(parsed.pathname),
    query: parsed.search.slice(1),
    socketPath: null,
  };
}

function parseUnix(rest: string): UpstreamTarget {
  // The last ":/" separates socket and base, so that a drive letter is not mistaken for it.
  const cut = rest.lastIndexOf(':/');
  const socketPath = cut > 0 ? rest.slice(0, cut) : rest;
  if (socketPath === '')
    throw new RangeError('Must name a socket, as in unix:/run/engine.sock:/v1');
  const basePath = cut > 0 ? trimSlash(rest.slice(cut + 1)) : '';
  return { origin: 'http://localhost', basePath, query: '', socketPath };
}

function trimSlash(path: string): string {
  return path.replace(/\/{1,9}$/, '');
}
