/**
 * Node's HTTP, of which the server takes these. An `import` of `node:http` reads each of its exports,
 * and those of the browser among them load Node's own client for `fetch`, which is a tenth of what a
 * start costs and which the server has no use for; so types alone are imported from there.
 */
export const { STATUS_CODES, createServer, request } = process.getBuiltinModule('node:http');
