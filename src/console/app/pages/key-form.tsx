/** What a key may do and spend, as a form for a new key and for one that is there. */
import { useState } from 'preact/hooks';
import { useModels } from '../lookups.ts';
import { ActionForm, AmountField, Select, TextField, useForm } from '../parts/form.tsx';
import { PERIOD_CHOICES } from '../periods.ts';
import type { ApiKey } from '../shapes.ts';

interface KeyFormProps {
  readonly given?: ApiKey | undefined;
  /** Gets the body of the request; a refusal is shown in the form. */
  readonly save: (body: Readonly<Record<string, unknown>>) => Promise<void>;
}

const KIND_CHOICES: readonly (readonly [string, string])[] = [
  ['INFERENCE', 'INFERENCE: calls models'],
  ['ADMIN', 'ADMIN: also manages keys and reads the account'],
];
const PRIVACY_CHOICES: readonly (readonly [string, string])[] = [
  ['ALL', 'Every model'],
  ['PRIVATE_TEXT', 'Text models must be private'],
  ['PRIVATE_ONLY', 'Private models only'],
];

/** Empty is no cap. */
function amountOf(text: string): number | null {
  return text.trim() === '' ? null : Number(text);
}

export function KeyForm({ given, save }: KeyFormProps) {
  const givenDay = given?.expiresAt?.slice(0, 10) ?? '';
  const { action, values, field } = useForm({
    kind: 'INFERENCE',
    description: given?.description ?? '',
    usd: String(given?.consumptionLimits.usd ?? ''),
    diem: String(given?.consumptionLimits.diem ?? ''),
    period: given?.limitPeriod ?? 'MONTH',
    privacy: given?.modelPrivacy ?? 'ALL',
    expires: givenDay,
  });
  const [models, setModels] = useState<readonly string[]>(given?.models ?? []);
  const submit = (): void => {
    const { kind, description, usd, diem, period, privacy, expires } = values;
    const body = {
      ...(given === undefined ? { apiKeyType: kind } : {}),
      description: description.trim(),
      consumptionLimit: { usd: amountOf(usd), diem: amountOf(diem) },
      limitPeriod: period,
      modelPrivacy: privacy,
      models: models.length === 0 ? null : models,
      // The time of a key that expires within a day stays as it is.
      ...(given !== undefined && expires === givenDay ? {} : { expiresAt: expires }),
    };
    void action.run(() => save(body));
  };
  return (
    <ActionForm action={action} submit={submit} does={given === undefined ? 'Create' : 'Save'}>
      {given === undefined && <Select {...field('kind')} label="Kind" options={KIND_CHOICES} />}
      <TextField
        {...field('description')}
        label="Description"
        hint="What uses it, for you to know."
        required
        maxLength={64}
      />
      <div class="fields-row">
        <AmountField
          {...field('usd', 'consumptionLimit')}
          label="Cap in USD"
          hint="Empty: no cap."
        />
        <AmountField {...field('diem')} label="Cap in daily credit" hint="Empty: no cap." />
        <Select {...field('period')} label="Caps start again" options={PERIOD_CHOICES} />
      </div>
      <div class="fields-row">
        <TextField
          {...field('expires', 'expiresAt')}
          label="Expires"
          hint="At 00:00 UTC of that day; empty: never."
          type="date"
        />
        <Select {...field('privacy')} label="Privacy" options={PRIVACY_CHOICES} />
      </div>
      <ModelChoice chosen={models} choose={setModels} />
    </ActionForm>
  );
}

interface ModelChoiceProps {
  readonly chosen: readonly string[];
  readonly choose: (ids: readonly string[]) => void;
}

function ModelChoice({ chosen, choose }: ModelChoiceProps) {
  const models = useModels();
  const ids = [...new Set([...models.map(({ id }) => id), ...chosen])];
  return (
    <details class="choice" open={chosen.length > 0}>
      <summary>Models: {chosen.length === 0 ? 'every one' : `${chosen.length} chosen`}</summary>
      <div class="checks">
        {ids.map((id) => (
          <label key={id} class="check">
            <input
              type="checkbox"
              checked={chosen.includes(id)}
              onChange={(event) =>
                choose(
                  event.currentTarget.checked
                    ? [...chosen, id]
                    : chosen.filter((one) => one !== id),
                )
              }
            />
            <span class="text">{id}</span>
          </label>
        ))}
      </div>
    </details>
  );
}
