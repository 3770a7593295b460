// Batch-softmax loss of a small batch, cell by cell: a copy of bsc_core/losses/explain.py, compared with it by a browser
// test. Matrices are arrays of rows; masks are arrays of rows of booleans.

const SMALLEST_RANGE = 1e-6;
const TIE = 1e-6; // cosines this close above the limit of a mask count as equal to it
const RELATIVE_TIE = 1e-6, ABSOLUTE_TIE = 1e-12;

const matrix = (height, width, value) =>
  Array.from({ length: height }, (_, i) => Array.from({ length: width }, (_, j) => value(i, j)));
// The batch that Python sent, with its vectors as rows.
const batchOf = (data) => ({ ...data, queries: rowsOf(data.queries), documents: rowsOf(data.documents) });
const transpose = (rows) => matrix(rows.length ? rows[0].length : 0, rows.length, (i, j) => rows[j][i]);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const dot = (left, right) => left.reduce((sum, value, d) => sum + value * right[d], 0);
// The index of the largest value; of values that differ by rounding alone, the lowest index.
function firstLargest(values) {
  const largest = Math.max(...values);
  return values.findIndex((value) => value >= largest - RELATIVE_TIE * Math.abs(largest) - ABSOLUTE_TIE);
}

const inverse = (size, smallest) => (size > smallest ? 1 / size : 0);

function normalize(vectors, normalization) {
  if (normalization === "none") return vectors;
  if (normalization === "l2") {
    return vectors.map((row) => {
      const scale = inverse(Math.sqrt(dot(row, row)), 0);
      return row.map((value) => value * scale);
    });
  }
  const smallest = SMALLEST_RANGE * Math.max(...vectors.flat().map(Math.abs));
  const columns = transpose(vectors).map((column) => {
    if (normalization === "l2_columns") {
      const scale = inverse(Math.sqrt(dot(column, column)), smallest);
      return column.map((value) => value * scale);
    }
    const lowest = Math.min(...column);
    const scale = inverse(Math.max(...column) - lowest, smallest);
    const shift = normalization === "minmax_columns" ? lowest : 0;
    return column.map((value) => (value - shift) * scale);
  });
  return transpose(columns);
}

// Masks of the positives and the candidates of each anchor, from the text ids of both sides.
function masks(settings, positive, anchorIds, candidateIds) {
  const pairs = positive.length;
  const isIncluded = positive.map((value) => settings.labeled_negatives || value);
  const isFirst = candidateIds.map((text, j) => candidateIds.findIndex((other, k) => other === text && isIncluded[k]) === j);
  const isSame = (i, j) => candidateIds[i] === candidateIds[j];
  const positives = matrix(pairs, pairs, (i, j) => {
    if (!positive[i]) return false;
    if (settings.duplicates !== "multi_positive") return i === j;
    return isSame(i, j) || (anchorIds[i] === anchorIds[j] && positive[j]);
  });
  const candidates = matrix(pairs, pairs, (i, j) => {
    if (positives[i][j]) return true;
    return settings.duplicates === "merge" ? isFirst[j] && !isSame(i, j) : isIncluded[j];
  });
  return { positives, candidates };
}

const treatsNegatives = (settings) => settings.mask !== "none" || settings.hardness === "in_batch_negatives"
  || settings.decoupled || settings.debiased_prior > 0;

// Similarity to query i above which the mask removes a document.
const maskLimit = (judged, i, settings) => judged[i][i]
  - settings.mask_margin * (settings.mask_margin_kind === "relative" ? Math.abs(judged[i][i]) : 1);

// Removes from the candidates what the false-negative mask removes; returns the cells that the judge removed.
// judged: cosines of the judge.
function applyMask({ positives, candidates }, judged, settings, labeled) {
  const pairs = judged.length;
  if (settings.mask === "none") return matrix(pairs, pairs, () => false);
  return matrix(pairs, pairs, (i, j) => {
    if (positives[i][j] || !candidates[i][j]) return false;
    const label = labeled(i, j);
    const isRemoved = label === null && judged[i][j] > maskLimit(judged, i, settings) + TIE;
    if (label === true || isRemoved) candidates[i][j] = false;
    return isRemoved;
  });
}

// One direction: the softmax and loss of each anchor, and the gradient of the summed losses by the logits.
// bumps: hardness weights of the negatives. The probability is the derivative of the log denominator by a logit.
function direction(scores, { positives, candidates, masked }, settings, bumps = null) {
  const probability = [], push = [], losses = [], counted = [], prior = settings.debiased_prior ?? 0;
  const withoutPositives = Boolean(settings.decoupled) || prior > 0, isTreated = treatsNegatives(settings);
  scores.forEach((row, i) => {
    const isNegative = row.map((_, j) => candidates[i][j] && !positives[i][j]);
    const logits = row.map((value, j) => value + (bumps && isNegative[j] ? bumps[i][j] : 0));
    const included = withoutPositives ? isNegative : candidates[i];
    const highest = Math.max(...logits.filter((_, j) => included[j]));
    const exponentials = logits.map((value, j) => (included[j] ? Math.exp(value - highest) : 0));
    const sum = total(exponentials);
    let p = exponentials.map((value) => (sum > 0 ? value / sum : 0)), logSum = Math.log(sum) + highest;
    const positiveCount = positives[i].filter(Boolean).length, negativeCount = isNegative.filter(Boolean).length;
    const target = positives[i].map((value) => (value ? 1 / positiveCount : 0));
    const positiveLogit = total(logits.map((value, j) => (target[j] ? value * target[j] : 0)));
    if (prior) ({ logSum, p } = debiased(logSum, p, positiveLogit, target, negativeCount, settings));
    const counts = positiveCount > 0 && !(isTreated && !negativeCount); // a row that lost all negatives gives 0
    counted.push(counts);
    probability.push(p);
    push.push(p.map((value, j) => (counts ? value - target[j] : 0)));
    losses.push(counts ? logSum - positiveLogit : 0);
  });
  return { probability, push, losses, counted, positives, candidates, masked };
}

// The logarithm of the debiased denominator and its derivatives by the logits.
function debiased(logSum, p, positiveLogit, target, count, { debiased_prior: prior, temperature, decoupled }) {
  const number = Math.max(1, count), mean = logSum - Math.log(number);
  const part = Math.exp(Math.min(0, Math.log(prior) + positiveLogit - mean)); // expected share of the positives
  const estimate = mean + Math.log1p(-part) - Math.log1p(-prior), lowest = -1 / temperature;
  const above = count > 0 && part < 1 && estimate > lowest;
  const result = Math.log(number) + (above ? estimate : lowest);
  const slopes = p.map((value, j) => (above ? (value - part * target[j]) / (1 - part) : 0));
  if (decoupled) return { logSum: result, p: slopes };
  const highest = Math.max(result, positiveLogit);
  const sum = highest + Math.log(Math.exp(result - highest) + Math.exp(positiveLogit - highest));
  const share = Math.exp(result - sum);
  return { logSum: sum, p: slopes.map((slope, j) => share * slope + (1 - share) * target[j]) };
}

function effectiveNegatives({ probability, positives, candidates }) {
  const counts = [];
  probability.forEach((row, i) => {
    const negatives = row.filter((_, j) => candidates[i][j] && !positives[i][j]);
    const sum = total(negatives);
    if (!positives[i].some(Boolean) || !(sum > 0)) return;
    counts.push(Math.exp(-total(negatives.map((p) => (p > 0 ? (p / sum) * Math.log(p / sum) : 0)))));
  });
  return counts.length ? total(counts) / counts.length : 0;
}

// Similarities and masks: all that the temperature does not change, kept for each batch by the other settings.
const prepared = new WeakMap();
function prepare(batch, settings) {
  const key = JSON.stringify({ ...settings, temperature: 0 });
  if (!prepared.has(batch)) prepared.set(batch, {});
  return (prepared.get(batch)[key] ??= compute());

  function compute() {
    const left = normalize(batch.queries, settings.normalization);
    const right = normalize(batch.documents, settings.normalization);
    const positive = batch.labels.map((label) => label > settings.threshold), pairs = positive.length;
    const [queries, documents] = [batch.queries, batch.documents].map((vectors) => normalize(vectors, "l2"));
    const cosines = matrix(pairs, pairs, (i, j) => dot(queries[i], documents[j]));
    const judged = settings.mask === "guide" ? batch.guide : cosines;
    // The label of a cell off the diagonal whose texts are a pair of the batch, null if they are none.
    const label = (i, j) => {
      const rows = positive.filter((_, k) => batch.query_ids[k] === batch.query_ids[i] && batch.document_ids[k] === batch.document_ids[j]);
      return rows.length ? rows.some(Boolean) : null;
    };
    const rowMasks = masks(settings, positive, batch.query_ids, batch.document_ids);
    rowMasks.masked = applyMask(rowMasks, judged, settings, label);
    const columnMasks = settings.symmetric ? masks(settings, positive, batch.document_ids, batch.query_ids) : null;
    if (columnMasks) columnMasks.masked = applyMask(columnMasks, transpose(judged), settings, (i, j) => label(j, i));
    const strength = settings.hardness === "in_batch_negatives" ? settings.hardness_strength : 0;
    return {
      similarity: matrix(left.length, right.length, (i, j) => dot(left[i], right[j])), positive, rowMasks, columnMasks, judged,
      bumps: strength ? matrix(pairs, pairs, (i, j) => (i === j ? 0 : strength * cosines[i][j])) : null,
    };
  }
}

// All values of the panels. batch: queries, documents, labels, query_ids, document_ids; settings: of the lab.
function explainBatch(batch, settings) {
  const pairs = batch.queries.length;
  const { similarity, positive, rowMasks, columnMasks, judged, bumps } = prepare(batch, settings);
  const logits = similarity.map((row) => row.map((value) => value / settings.temperature));
  const rows = direction(logits, rowMasks, settings, bumps);
  const columns = columnMasks ? direction(transpose(logits), columnMasks, settings) : null;
  const all = settings.average === "batch" && settings.labeled_negatives;
  const count = all ? pairs : Math.max(1, positive.filter(Boolean).length);
  const weight = columns && settings.reduction === "mean" ? 0.5 : 1;
  const gradient = matrix(pairs, pairs, (i, j) => {
    const push = rows.push[i][j] + (columns ? columns.push[j][i] : 0);
    return (push / count) * weight / settings.temperature;
  });
  const first = total(rows.losses) / count;
  const second = columns ? total(columns.losses) / count : null;
  const anchorLosses = rows.losses.map((loss, i) => (rows.positives[i].some(Boolean) ? loss : -Infinity));
  return {
    similarity, logits, gradient, rows, columns, positive, count, weight, first, second, judged, bumps,
    total: weight * (first + (second ?? 0)),
    gradientSum: total(gradient.flat().map(Math.abs)),
    effective: effectiveNegatives(rows),
    hardest: positive.some(Boolean) ? firstLargest(anchorLosses) : -1,
  };
}
