/** The pages Configuration (settings in force and pending changes) and Check. */
import { CodeBlock } from '../parts/code.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { State } from '../parts/values.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { useCall } from '../resource.ts';
import type { CheckResponse, ConfigResponse } from '../shapes.ts';

export function Configuration() {
  const config = useCall<ConfigResponse>('/admin/config');
  return (
    <>
      <PageHead title="Configuration" lead="The settings in force. Secrets are masked.">
        <button type="button" disabled={config.isLoading} onClick={config.reload}>
          Refresh
        </button>
      </PageHead>
      <Loaded from={config}>
        {({ yaml, reload }) => (
          <>
            <ReloadNotice reload={reload} />
            <CodeBlock title="Settings in force" text={yaml} />
          </>
        )}
      </Loaded>
    </>
  );
}

function ReloadNotice({
  reload: { ok, changed, restart, problems },
}: Pick<ConfigResponse, 'reload'>) {
  if (!ok) {
    return (
      <Notice tone="bad">
        <p>
          The configuration file is not valid. The server keeps the settings in force until you
          correct it:
        </p>
        <ul>
          {problems.map((problem) => (
            <li key={problem} class="text">
              {problem}
            </li>
          ))}
        </ul>
      </Notice>
    );
  }
  if (changed.length === 0 && restart.length === 0) {
    return <Notice tone="good">The configuration file has no changes to apply.</Notice>;
  }
  return (
    <Notice tone="warn">
      {changed.length > 0 && <p>The file changes these sections: {changed.join(', ')}.</p>}
      {restart.length > 0 && <p>Restart the server to apply: {restart.join(', ')}.</p>}
    </Notice>
  );
}

export function Check() {
  const check = useCall<CheckResponse>('/admin/check');
  return (
    <>
      <PageHead
        title="Check"
        lead="The results of farebox check: database, engines, RPC nodes, web search and payments."
      >
        <button type="button" disabled={check.isLoading} onClick={check.reload}>
          {check.isLoading ? 'Checking…' : 'Run again'}
        </button>
      </PageHead>
      <Loaded from={check}>
        {({ ok, findings }) => (
          <>
            <p class={`verdict ${ok ? 'good' : 'bad'}`} role="status">
              {ok
                ? 'All checks passed.'
                : 'At least one check failed. Correct the lines marked wrong.'}
            </p>
            <ul class="findings">
              {findings.map(({ what, state, says }, at) => (
                <li key={`${at} ${what}`}>
                  <State value={state} />
                  <strong class="text">{what}</strong>
                  <span class="text">{says}</span>
                </li>
              ))}
            </ul>
          </>
        )}
      </Loaded>
    </>
  );
}
