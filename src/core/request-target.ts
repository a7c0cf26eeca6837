/** Splits the target of an HTTP request. */

/** Returns the path, without query, fragment, or origin of an absolute target (RFC 9112). */
export function targetPath(target: string | undefined): string {
  const [path = ''] = (target ?? '').split(/[?#]/, 1);
  return path.startsWith('/') ? path : path.replace(/^https?:\/\/[^/]*/i, '');
}

export function targetQuery(target: string | undefined): string {
  const at = target?.indexOf('?') ?? -1;
  return at < 0 ? '' : (target ?? '').slice(at + 1);
}
