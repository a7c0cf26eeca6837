/**
 * The exports of `node:http` that the server uses. A normal `import` evaluates every export and so
 * loads Node's `fetch` client, which takes a tenth of the start-up time.
 */
export const { STATUS_CODES, createServer, request } = process.getBuiltinModule('node:http');
