/** The reference page of the refusals, made from the catalogue in `core/fault-table.ts`. */
import { FAULTS } from '../../src/core/faults.ts';

const INTRODUCTION = `# Errors

<!-- prettier-ignore-start -->

_Generated from \`src/core/fault-table.ts\` by \`npx node scripts/write-reference.ts\`._

Every refusal has a status, a stable code and a sentence. The sentence of an answer is often more
precise than the one below: it names the field, the limit or the model. A caller branches on the code.

- The body is \`{"error": "<sentence>", "code": "<CODE>"}\`; an invalid request adds \`details\`, one key
  for each field that is wrong.
- SDKs of the OpenAI protocol get \`{"error": {"message", "type", "param", "code"}}\` on the routes of that
  protocol: they are recognized by \`User-Agent\` and \`x-stainless-lang\`, and \`Vary\` names both. The
  request header \`x-svc-error-format\` decides for any client: \`openai\` for this object, \`svc\` for the
  standard body.
- A 402 that says how to pay has the body of x402 in every form, on every route.
- \`x-request-id\` names the request; give it to the operator when you ask.
- \`Retry-After\` says when to try again. \`x-should-retry: false\` says that the same request cannot
  succeed.
- When several apply, [one order](precedence.md) says which one answers.
- A refusal costs nothing: what was set aside is given back before the answer leaves.

| status | code | sentence | what to do | can the same request succeed later |
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
