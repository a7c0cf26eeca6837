/** Generates the reference page of error codes from `core/fault-table.ts`. */
import { FAULTS } from '../../src/core/faults.ts';

const INTRODUCTION = `# Errors

<!-- prettier-ignore-start -->

_Generated from \`src/core/fault-table.ts\` by \`npx node scripts/write-reference.ts\`._

This page lists every error code, its HTTP status and its remedy. Codes are stable: branch on \`code\`, not on
the text. The text of a response is often more precise than the one below and names the field, the limit or the
model.

- The body is \`{"error": "<text>", "code": "<CODE>"}\`. An invalid request adds \`details\` with one key for
  each invalid field.
- SDKs of the OpenAI protocol receive \`{"error": {"message", "type", "param", "code"}}\` on the routes of that
  protocol. The server recognizes them by \`User-Agent\` and \`x-stainless-lang\`, and \`Vary\` names both. Any
  client can choose with the request header \`x-svc-error-format\`: \`openai\` for this object, \`svc\` for the
  standard body.
- A 402 response with payment options has the x402 body on every route, whatever the format.
- \`x-request-id\` identifies the request; quote it when you contact the operator.
- \`Retry-After\` contains the seconds to wait before a retry. \`x-should-retry: false\` means that the same
  request cannot succeed.
- If a request has several faults, the [order of errors](precedence.md) decides which one it receives.
- An error response costs nothing: the server releases the hold before it sends the response. If the disk
  or the connection to the database fails while a charge is written, the connection closes without a response: the
  charge may exist.

| status | code | text | remedy | the same request can succeed later |
| --- | --- | --- | --- | --- |
`;

/** The whole page as Markdown. */
export function errorsPage(): string {
  const rows = Object.entries(FAULTS).map(
    ([code, fault]) =>
      `| ${fault.status} | \`${code}\` | ${fault.message} | ${fault.remedy} | ${fault.canRetry ? 'yes' : 'no'} |\n`,
  );
  return `${INTRODUCTION}${rows.join('')}\n<!-- prettier-ignore-end -->\n`;
}
