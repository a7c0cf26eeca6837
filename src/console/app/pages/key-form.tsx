/** The form of an API key, for creating and changing one. */
import { useState } from 'preact/hooks';
import { useModels } from '../lookups.ts';
import {
  ActionForm,
  AmountField,
  type Choices,
  Select,
  TextField,
  useForm,
} from '../parts/form.tsx';
import { PERIOD_CHOICES } from '../periods.ts';
import { can } from '../session.ts';
import type { ApiKey } from '../shapes.ts';

interface KeyFormProps {
  readonly given?: ApiKey | undefined;
  /** Sends the request body; the form shows its error. */
  readonly save: (body: Readonly<Record<string, unknown>>) => Promise<void>;
}

const KIND_CHOICES: Choices = [
  ['INFERENCE', 'INFERENCE: calls models'],
  ['ADMIN', 'ADMIN: also manages keys and reads the account'],
];
const PRIVACY_CHOICES: Choices = [
  ['ALL', 'All models'],
  ['PRIVATE_TEXT', 'Text models must be private'],
  ['PRIVATE_ONLY', 'Private models only'],
];

/** An empty text means no limit. */
function amountOf(text: string): number | null {
  return text.trim() === '' ? null : Number(text);
}

export function KeyForm({ given, save }: KeyFormProps) {
  // The values that the user saw first: another member can change the key meanwhile.
  const [seen] = useState({
    kind: 'INFERENCE',
    description: given?.description ?? '',
    usd: String(given?.consumptionLimits.usd ?? ''),
    diem: String(given?.consumptionLimits.diem ?? ''),
    period: given?.limitPeriod ?? 'MONTH',
    privacy: given?.modelPrivacy ?? 'ALL',
    expires: given?.expiresAt?.slice(0, 10) ?? '',
  });
  const [seenModels] = useState<readonly string[]>(given?.models ?? []);
  const { action, values, field } = useForm<keyof typeof seen>(seen);
  const [models, setModels] = useState(seenModels);
  const submit = (): void => {
    const { kind, description, usd, diem, period, privacy, expires } = values;
    const isNew = given === undefined;
    const isSent = (name: keyof typeof seen): boolean => isNew || values[name] !== seen[name];
    const consumptionLimit = {
      ...(isSent('usd') && { usd: amountOf(usd) }),
      ...(isSent('diem') && { diem: amountOf(diem) }),
    };
    const body = {
      ...(isNew && { apiKeyType: kind }),
      ...(isSent('description') && { description: description.trim() }),
      ...(Object.keys(consumptionLimit).length > 0 && { consumptionLimit }),
      ...(isSent('period') && { limitPeriod: period }),
      ...(isSent('privacy') && { modelPrivacy: privacy }),
      ...((isNew || models !== seenModels) && { models: models.length === 0 ? null : models }),
      // An unchanged day keeps the exact time of the expiry.
      ...(isSent('expires') && { expiresAt: expires }),
    };
    void action.run(() => save(body));
  };
  return (
    <ActionForm action={action} submit={submit} label={given === undefined ? 'Create' : 'Save'}>
      {given === undefined && can('own') && (
        <Select {...field('kind')} label="Kind" options={KIND_CHOICES} />
      )}
      <TextField
        {...field('description')}
        label="Description"
        hint="For example, the program that uses the key."
        required
        maxLength={64}
      />
      <div class="fields-row">
        <AmountField
          {...field('usd', 'consumptionLimit')}
          label="Spend limit in USD"
          hint="Leave empty for no limit."
        />
        <AmountField
          {...field('diem')}
          label="Spend limit in daily credit"
          hint="Leave empty for no limit."
        />
        <Select {...field('period')} label="Spend limits reset" options={PERIOD_CHOICES} />
      </div>
      <div class="fields-row">
        <TextField
          {...field('expires', 'expiresAt')}
          label="Expires"
          hint="At 00:00 UTC of this day. Leave empty for never."
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
      <summary>Models: {chosen.length === 0 ? 'all' : `${chosen.length} selected`}</summary>
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
