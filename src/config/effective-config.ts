/**
 * Formats the effective settings as YAML for `farebox check`. It masks secret settings, credentials in URLs,
 * and paths of node URLs, and shows only the paths of PEM files.
 */
import { stringify } from 'yaml';

import type { Config } from './sections.ts';
import { isSecret, schemaAt, schemaTree, type SchemaNode } from './explain.ts';
import { fileSchema } from './sections.ts';
import type { Path } from './yaml-source.ts';

export const MASK = '********';

/** Returns YAML without secrets, which can be pasted into a bug report. */
export function describeConfig(config: Config): string {
  const root = schemaTree(fileSchema());
  const { databaseUrl, dataFolder, publicUrl, searchPath: _, downloads, ...others } = config;
  // The sections contain these settings.
  const { resolvedPlans: _plans, ...sections } = others;
  // The other download settings can contain passwords.
  const { registry } = downloads;
  const shown = { database: databaseUrl, data: dataFolder, publicUrl, registry, ...sections };
  return stringify(mask(shown, [], root), { lineWidth: 0 });
}

function mask(value: unknown, path: Path, root: SchemaNode): unknown {
  if (Array.isArray(value)) return value.map((item, index) => mask(item, [...path, index], root));
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).filter(
      ([key, entry]) => entry !== undefined && !isPemText([...path, key], root),
    );
    return Object.fromEntries(
      entries.map(([key, entry]) => [key, mask(entry, [...path, key], root)]),
    );
  }
  return typeof value === 'string' ? masked(value, path, root) : value;
}

/** The text of a setting without secrets. A reference to an environment variable is none. */
export function masked(value: string, path: Path, root: SchemaNode): string {
  if (value === '' || VARIABLE.test(value)) return value;
  const url = URL.parse(value);
  if (url !== null && url.host !== '') {
    return withoutSecrets(value, url, String(path[0]));
  }
  // `URL` cannot parse an address with several servers.
  if (SEVERAL_SERVERS.test(value)) return value.replace(SEVERAL_SERVERS, `$1:${MASK}@`);
  // A database URL without a host is a file name, which is not secret.
  return path[0] !== 'database' && isSecret(root, path) ? MASK : value;
}

/** A value that is only a variable, without a default. */
const VARIABLE = /^\$\{[A-Za-z_][A-Za-z0-9_]*\}$/;

/** True for the loaded texts of PEM files, which are not settings. */
function isPemText(path: Path, root: SchemaNode): boolean {
  return path.at(-1) === 'tls' && schemaAt(root, path) === undefined;
}

const SEVERAL_SERVERS = /^([a-z][a-z0-9+.-]*:\/\/[^:@/]*):[^@/]*@(?=[^/]*,)/i;

/** Sections with URLs of nodes, whose path can contain an access key. */
const HAS_KEY_IN_PATH: ReadonlySet<string> = new Set(['rpc', 'payments']);

/** Masks the password, the query, and the path of a node URL. */
function withoutSecrets(text: string, url: URL, section: string): string {
  const { href } = url;
  if (url.password !== '') url.password = MASK;
  // A user name without a password may be a token, except that of a database.
  else if (url.username !== '' && section !== 'database') url.username = MASK;
  if (url.search !== '') url.search = `?${MASK}`;
  if (HAS_KEY_IN_PATH.has(section) && url.pathname !== '/') url.pathname = `/${MASK}`;
  return url.href === href ? text : url.href;
}
