/**
 * The effective settings as YAML for people (`farebox check`), with every secret masked: settings
 * that are marked as secrets, credentials inside URLs, the paths of nodes, and, in sections of unknown
 * shape, keys that sound like a secret. Of PEM files it has the path only.
 */
import { stringify } from 'yaml';

import type { Config } from './sections.ts';
import { isSecret, schemaAt, schemaTree, type SchemaNode } from './explain.ts';
import { fileSchema } from './sections.ts';
import type { Path } from './yaml-source.ts';

const MASK = '********';

/** YAML text of the settings in force; safe to show and to paste into a bug report. */
export function describeConfig(config: Config): string {
  const root = schemaTree(fileSchema());
  const { databaseUrl, dataFolder, publicUrl, searchPath: _, downloads, ...sections } = config;
  // Of what npm's own file and the environment say, the address alone: the rest may hold passwords.
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
  if (typeof value !== 'string' || value === '') return value;
  const url = URL.parse(value);
  if (url !== null && url.host !== '') {
    return withoutSecrets(value, url, String(path[0]));
  }
  // An address of several servers is none to `URL`.
  if (SEVERAL_SERVERS.test(value)) return value.replace(SEVERAL_SERVERS, `$1:${MASK}@`);
  // A database address without a host is a file; its name is no secret.
  return path[0] !== 'database' && isSecret(root, path) ? MASK : value;
}

/** The texts of PEM files stand beside their paths, and are no setting. */
function isPemText(path: Path, root: SchemaNode): boolean {
  return path.at(-1) === 'tls' && schemaAt(root, path) === undefined;
}

const SEVERAL_SERVERS = /^([a-z][a-z0-9+.-]*:\/\/[^:@/]*):[^@/]*@(?=[^/]*,)/i;

/** Sections whose addresses are of nodes: their access keys are words of the path. */
const HAS_KEY_IN_PATH: ReadonlySet<string> = new Set(['rpc', 'payments']);

/** Keeps the address and hides what may be a credential: the password, the query, a node's path. */
function withoutSecrets(text: string, url: URL, section: string): string {
  const { href } = url;
  if (url.password !== '') url.password = MASK;
  // A user name without a password may be a token, except that of a database.
  else if (url.username !== '' && section !== 'database') url.username = MASK;
  if (url.search !== '') url.search = `?${MASK}`;
  if (HAS_KEY_IN_PATH.has(section) && url.pathname !== '/') url.pathname = `/${MASK}`;
  return url.href === href ? text : url.href;
}
