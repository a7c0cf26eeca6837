/**
 * Selects the HTTP proxy of a request to an upstream from `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
 * Requests to loopback addresses and local sockets use no proxy. Requests to URLs from callers use none
 * either, because the guard (`net/guard.ts`) connects to the address that it has checked.
 */
import ipaddr from 'ipaddr.js';
import type { Environment } from './yaml-source.ts';

/** Plain data. The URLs can contain a password. */
export interface ProxySettings {
  /** For `http://` targets. */
  readonly httpProxy: string | undefined;
  /** For `https://` targets. */
  readonly httpsProxy: string | undefined;
  readonly noProxy: string | undefined;
}

/** Message for a text for which `isProxyUrl` is false. */
export const PROXY_RULE =
  'Must be the http:// or https:// URL of a proxy, such as http://proxy.example:3128';

/** `ignored` has the names of variables whose value is not a proxy URL. */
export function environmentProxies(env: Environment): ProxySettings & {
  readonly ignored: readonly string[];
} {
  const ignored: string[] = [];
  const read = (name: string): string | undefined =>
    env[name.toLowerCase()] || env[name] || undefined;
  const proxy = (name: string): string | undefined => {
    const text = read(name);
    // A value without a scheme, such as `proxy.example:3128`, is usual.
    const url = text === undefined || text.includes('://') ? text : `http://${text}`;
    if (url === undefined || isProxyUrl(url)) return url;
    ignored.push(name);
    return undefined;
  };
  return {
    httpProxy: proxy('HTTP_PROXY'),
    httpsProxy: proxy('HTTPS_PROXY'),
    noProxy: read('NO_PROXY'),
    ignored,
  };
}

export function isProxyUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return false;
  try {
    decodeURIComponent(url.username + url.password);
    return true;
  } catch {
    return false; // a percent sign that escapes nothing
  }
}

/** Returns the proxy for a target URL, or `undefined` for a direct connection. */
export function proxyOf(
  { httpProxy, httpsProxy, noProxy = '' }: ProxySettings,
  target: string,
): string | undefined {
  const url = URL.parse(target);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return undefined;
  const isTls = url.protocol === 'https:';
  const host = withoutBrackets(url.hostname).replace(/\.$/, '');
  const port = url.port || (isTls ? '443' : '80');
  const rules = noProxy.toLowerCase().split(/[\s,]+/);
  if (isLoopback(host) || rules.some((rule) => isExempt(rule, host, port))) return undefined;
  return isTls ? httpsProxy : httpProxy;
}

function isLoopback(host: string): boolean {
  if (ipaddr.isValid(host)) return ipaddr.process(host).range() === 'loopback';
  return host === 'localhost' || host.endsWith('.localhost');
}

/** Matches a rule of `NO_PROXY`: `*`, `10.0.0.0/8`, or a host with its subdomains and an optional port. */
function isExempt(rule: string, host: string, port: string): boolean {
  if (rule === '*') return true;
  if (ipaddr.isValidCIDR(rule)) return isInNetwork(host, rule);
  const [, named = rule, onlyPort] = /^(\[.+\]|[^:]*)(?::(\d+))?$/.exec(rule) ?? [];
  if (onlyPort !== undefined && onlyPort !== port) return false;
  const name = withoutBrackets(named).replace(/^\*?\./, '');
  return name !== '' && (host === name || host.endsWith(`.${name}`));
}

function isInNetwork(host: string, cidr: string): boolean {
  const [network, bits] = ipaddr.parseCIDR(cidr);
  if (!ipaddr.isValid(host)) return false;
  const address = ipaddr.process(host);
  return address.kind() === network.kind() && address.match([network, bits] as [never, number]); // kinds are equal
}

function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
