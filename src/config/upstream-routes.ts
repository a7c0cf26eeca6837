/**
 * Adds the proxy and the texts of PEM files to the settings of upstream servers. The files are
 * loaded with the configuration, so a rotated certificate counts as a change of the configuration.
 */
import { X509Certificate } from 'node:crypto';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { reasonOf } from '../core/log.ts';
import type { TlsMaterial } from '../core/upstream-url.ts';
import type { Diagnostics } from './explain.ts';
import { type ProxySettings, proxyOf } from './outgoing-proxy.ts';
import type { Path } from './yaml-source.ts';

/** Settings of an upstream with its proxy. */
export type Proxied<Settings> = Settings & { readonly proxy?: string | undefined };

/** Settings of an upstream with its proxy and the texts of its PEM files. */
export type Routed<Settings> = Proxied<Settings> & { readonly tls?: TlsMaterial | undefined };

interface UpstreamSettings {
  readonly url: string;
  readonly proxy?: string | undefined;
  /** Paths of PEM files. */
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

export interface RouteSources {
  readonly proxies: ProxySettings;
  /** Relative paths start here. */
  readonly folder: string;
  readonly diagnostics: Diagnostics;
  /** Reads a file by its absolute path; returns its text or the error. */
  readonly readFile: (path: string) => Promise<{ text?: string | undefined; error?: string }>;
}

const PEM_SETTINGS = ['ca', 'cert', 'key'] as const;

/** Adds problems to the diagnostics. `path` is the path of the upstream in the configuration. */
export async function routeTo<Settings extends UpstreamSettings>(
  upstream: Settings,
  path: Path,
  { proxies, folder, diagnostics, readFile }: RouteSources,
): Promise<Routed<Settings>> {
  const { url } = upstream;
  const problem = (setting: string, message: string): void =>
    diagnostics.problem([...path, setting], message);
  if (url.startsWith('unix:') && upstream.proxy !== undefined) {
    problem('proxy', 'A local socket cannot use a proxy; remove this setting');
  }
  const routed = withProxy(upstream, proxies);
  const files = PEM_SETTINGS.filter((name) => upstream[name] !== undefined);
  const [first] = files;
  if (first === undefined) return routed;
  if (!url.startsWith('https:')) {
    problem(first, 'Certificates need TLS; write "url" with https://, or remove this setting');
    return routed;
  }
  const tls: Partial<Record<(typeof PEM_SETTINGS)[number], string>> = {};
  for (const name of files) {
    const file = resolve(folder, upstream[name] ?? '');
    const { text, error = `There is no file ${file}; write the path of a PEM file` } =
      await readFile(file);
    if (text === undefined) problem(name, error);
    else tls[name] = text;
  }
  if (files.every((name) => tls[name] !== undefined)) checkTls(tls, problem);
  return { ...routed, tls };
}

export function withProxy<Settings extends UpstreamSettings>(
  upstream: Settings,
  proxies: ProxySettings,
): Proxied<Settings> {
  const proxy = upstream.proxy ?? proxyOf(proxies, upstream.url);
  return proxy === undefined ? upstream : { ...upstream, proxy };
}

function checkTls(
  { ca, cert, key }: TlsMaterial,
  problem: (setting: string, message: string) => void,
): void {
  for (const [name, text] of Object.entries({ ca, cert })) {
    if (text !== undefined && !isCertificate(text)) {
      return problem(
        name,
        'The file contains no certificate; write the path of a PEM file with one',
      );
    }
  }
  if (cert === undefined) {
    if (key !== undefined) problem('key', 'Needs "cert", the file of the certificate');
    return;
  }
  try {
    createSecureContext({ cert, key: key ?? cert });
  } catch (error) {
    // The reason comes from OpenSSL and contains no part of the key.
    const message = `No private key for "cert" can be read (${reasonOf(error)}); write the path of a PEM file with the key of the certificate, without a passphrase`;
    problem('key', message);
  }
}

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).subject !== undefined;
  } catch {
    return false; // not PEM, or another type of PEM
  }
}
