/** Opens connections to one origin: TCP, TLS or a Unix socket, directly or through an HTTP proxy. */
import type { Socket } from 'node:net';
import { buildConnector, Pool } from 'undici';
import type { TlsMaterial } from '../core/upstream-url.ts';

export interface Route {
  /** `http(s)://[user:password@]host[:port]` of a proxy. */
  readonly proxy?: string | undefined;
  readonly tls?: TlsMaterial | undefined;
}

/** `timeoutMs` bounds the TCP and TLS handshakes, and the proxy's response. */
export function connectorOf(
  { proxy, tls = {} }: Route,
  timeout: number,
  socketPath: string | null,
): buildConnector.connector {
  const { ca, cert, key } = tls;
  const trusted = ca === undefined ? {} : { ca };
  const secure = cert === undefined ? trusted : { ...trusted, cert, key: key ?? cert };
  if (socketPath !== null) return buildConnector({ timeout, allowH2: false, socketPath });
  const direct = buildConnector({ timeout, allowH2: false, ...secure });
  return proxy === undefined ? direct : tunnel(new URL(proxy), trusted, direct, timeout);
}

/**
 * Connects through a CONNECT tunnel. `undici.ProxyAgent` does the same, but copies the headers of each
 * request, and connects again without end to a proxy that closes the connection.
 */
function tunnel(
  { origin, username, password }: URL,
  trusted: { ca?: string },
  secure: buildConnector.connector,
  timeout: number,
): buildConnector.connector {
  const proxy = new Pool(origin, {
    connect: { timeout, allowH2: false, ...trusted },
    headersTimeout: timeout,
  });
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const authorization =
    credentials === ':'
      ? {}
      : { 'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}` };
  return (options, callback) => {
    const { hostname, port, protocol } = options;
    const name = hostname.includes(':') ? `[${hostname}]` : hostname;
    const host = `${name}:${port || (protocol === 'https:' ? 443 : 80)}`;
    proxy.connect({ path: host, headers: { host, ...authorization } }, (error, response) => {
      // Wrapped in another error: undici would reconnect after its own socket errors.
      if (error !== null) return callback(new Error(`No tunnel: ${error.message}`), null);
      // undici gives the socket under the type of its base class.
      const httpSocket = response.socket as Socket;
      if (response.statusCode !== 200) {
        httpSocket.on('error', () => undefined).destroy(); // its error is no longer relevant
        const message = `The proxy responded to CONNECT with status ${response.statusCode}`;
        callback(new Error(message), null);
      } else if (protocol === 'https:') secure({ ...options, httpSocket }, callback);
      else callback(null, httpSocket);
    });
  };
}
