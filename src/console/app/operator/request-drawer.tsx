/** The drawer that explains one request: response, next step, tries, charge and caller. */
import { durationText, exactDecimals, utcText } from '../format.ts';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { AccountLink, ModelName, WithId } from '../parts/names.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { Copy, CopyId, Facts, NONE, State, Time, Usd } from '../parts/values.tsx';
import { useCall } from '../resource.ts';
import type { ExplainedRequest } from '../shapes.ts';

export function RequestDrawer({ id, close }: { id: string; close: () => void }) {
  const request = useCall<{ data: ExplainedRequest }>(`/admin/requests/${encodeURIComponent(id)}`);
  return (
    <Overlay kind="drawer" title="Request" close={close}>
      <Loaded from={request}>{({ data }) => <Explanation request={data} />}</Loaded>
    </Overlay>
  );
}

function Explanation({ request }: { request: ExplainedRequest }) {
  const { account, apiKey, response, charge, tries, nextStep, parameters } = request;
  const { supplier, receipt } = request;
  const { status, code, message, cause } = response;
  const { usd, diem, reserved } = charge;
  const decimals = exactDecimals([usd, diem, reserved]);
  const tone = status !== null && status >= 500 ? 'bad' : message === null ? 'good' : 'warn';
  return (
    <div class="receipt">
      <p class="total">
        <span class="figure num">{status ?? '–'}</span>
        <State value={code ?? (message === null ? 'success' : 'disconnected')} tone={tone} />
      </p>
      {message !== null && <p class="text">{message}</p>}
      <Notice>
        <strong>Next step.</strong> {nextStep.operator}.
      </Notice>
      <Facts
        of={[
          ['Time', <Time iso={request.createdAt} />],
          ['Request id', <CopyId value={request.requestId} />],
          [
            'Account',
            account === null ? (
              'anonymous'
            ) : (
              <WithId id={account.id}>
                <AccountLink id={account.id} name={account.name} />
              </WithId>
            ),
          ],
          [
            'API key',
            apiKey === null ? (
              NONE
            ) : (
              <WithId id={apiKey.id}>
                <span class="text">{apiKey.description || apiKey.id}</span>
              </WithId>
            ),
          ],
          ['Route', request.route ?? request.kind ?? NONE],
          ['Model', request.model === null ? NONE : <ModelName id={request.model} />],
          ['Engine', request.engine ?? NONE],
          ['Duration', durationText(response.tookMs)],
          cause !== null && ['Cause', <span class="text">{cause}</span>],
          nextStep.caller !== null && ['For the caller', nextStep.caller],
        ]}
      />
      <h3>Charge</h3>
      <Facts
        of={[
          ['USD', <Usd value={usd} decimals={decimals} />],
          Number(diem) > 0 && ['Daily credit', <Usd value={diem} decimals={decimals} />],
          ['Held', <Usd value={reserved} decimals={decimals} />],
          ['Reason', charge.why],
        ]}
      />
      {supplier !== null && (
        <>
          <h3>Cost of the supplier</h3>
          <Facts
            of={[
              ['USD', <Usd value={supplier.usd} />],
              ...supplier.lines.map(
                ({ kind, quantity, price, usd }) =>
                  [
                    kind.replaceAll('_', ' '),
                    <span class="num">
                      {quantity === undefined ? usd : `${quantity} × ${price} = ${usd}`}
                    </span>,
                  ] as const,
              ),
            ]}
          />
        </>
      )}
      <Tries of={tries} />
      {Object.keys(parameters).length > 0 && (
        <>
          <h3>Parameters</h3>
          <Facts
            of={Object.entries(parameters).map(
              ([name, value]) => [name, <span class="num text">{value}</span>] as const,
            )}
          />
        </>
      )}
      {request.prompt !== null && (
        <>
          <h3>Beginning of the body</h3>
          <pre class="text">{request.prompt}</pre>
        </>
      )}
      {receipt !== null && (
        <>
          <h3>Usage</h3>
          <Facts
            of={[
              ['Prompt tokens', <span class="num">{receipt.tokens.prompt}</span>],
              ['Completion tokens', <span class="num">{receipt.tokens.completion}</span>],
              ['Counted by', receipt.tokens.countedBy],
              ['Price version', <code>{receipt.priceVersion}</code>],
              ...Object.entries(receipt.metadata).map(
                ([name, value]) => [`Tag ${name}`, <span class="text">{value}</span>] as const,
              ),
            ]}
          />
        </>
      )}
      <p class="row">
        <Copy text={JSON.stringify(request, null, 2)} label="Copy as JSON" />
      </p>
    </div>
  );
}

function Tries({ of }: { of: ExplainedRequest['tries'] }) {
  if (of.length === 0) return null;
  return (
    <>
      <h3>Tries</h3>
      <ol class="tries">
        {of.map((tried, at) => (
          <li key={at}>
            <p class="row">
              <strong class="text">
                {tried.engine}/{tried.target}
              </strong>
              <State value={tried.result} tone={tried.result === 'ok' ? 'good' : 'bad'} />
              {tried.status !== null && <span class="num">HTTP {tried.status}</span>}
              <span class="num soft">{durationText(tried.tookMs)}</span>
              <span class="num soft" title={utcText(tried.startedAt)}>
                {tried.startedAt.slice(11, 23)} UTC
              </span>
            </p>
            {[tried.detail, tried.words]
              .filter((text) => text !== '' && text !== `HTTP ${tried.status}`)
              .map((text) => (
                <p key={text} class="soft text">
                  {text}
                </p>
              ))}
          </li>
        ))}
      </ol>
    </>
  );
}
