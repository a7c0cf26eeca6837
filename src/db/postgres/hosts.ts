/**
 * Parses the servers of a database URL. `postgres://user@first:5432,second:5432/name` lists a
 * primary and its standbys; the writable one is used, also after a failover.
 */

const ADDRESS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)([/?].*)?$/;

/** Returns one URL for each listed server, in order; at least one. */
export function serversOf(url: string): readonly string[] {
  const [, head, hosts, tail] = ADDRESS.exec(url) ?? [];
  if (head === undefined || hosts === undefined || !hosts.includes(',')) return [url];
  return hosts.split(',').map((host) => `${head}${host}${tail ?? ''}`);
}
