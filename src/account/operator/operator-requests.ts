/** `/admin/requests`: single requests of all accounts. */
import { Fault } from '../../core/faults.ts';
import { type Route, get } from '../../http/route.ts';
import type { AccountParts } from '../account-parts.ts';
import { explainRequest } from './explain-request.ts';
import { EXPLAIN_REQUEST, type ExplainedResponse } from './operator-requests-schema.ts';

export function operatorRequestRoutes(parts: AccountParts): Route[] {
  return [
    get('/admin/requests/:id', 'operator', EXPLAIN_REQUEST, async (context) => {
      const data = await explainRequest(parts, context.parameters['id'] ?? '');
      if (data === undefined) throw new Fault('REQUEST_ID_NOT_FOUND');
      await context.json(200, { data } satisfies ExplainedResponse);
    }),
  ];
}
